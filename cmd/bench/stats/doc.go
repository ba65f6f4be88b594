// Package stats has the few figures of statistics that measurements are told in.
package stats
