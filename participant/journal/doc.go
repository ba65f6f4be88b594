// Package journal keeps, in one file, what was begun in a service that cannot list what is prepared in
// it: a [participant.Journal] for sinks in four functions.
package journal
