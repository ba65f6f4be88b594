// Package bench measures what a pipeline costs and how soon its output is visible, beside the same
// pipeline without transactions, and how long readers wait when something dies. Broker, coordinator nodes
// and pipeline are processes of their own; what is measured of the pipeline is read from the kernel when
// it ends. Every result is checked, so that nothing is fast because it is wrong.
package bench
