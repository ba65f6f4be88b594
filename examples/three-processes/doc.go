// Command three-processes is a pipeline whose source, window and sink are three processes, written
// on the participant SDK alone: records and barriers travel over plain local TCP connections, and
// the coordinator sees to it that the three take every epoch together or not at all.
//
// Read it in this order: link.go says what travels between the processes, stage.go what the three
// tasks share, and source.go, window.go and sink.go are one task each. README.md runs them by hand;
// the tests beside it kill and pause everything in turn and then count every record.
package main
