// Package finding is what a doctor finds: one setting of a broker, a server or a directory, as it is and as it should be.
package finding
