// Package obs holds the names under which unisink is observed: log keys and metric names.
//
// One idea has one key everywhere, so that a transaction can be followed by its id through
// the logs of every process it touched. Keys are functions, which a linter asks for, and take
// plain strings and numbers, so that this package imports nothing of ours.
//
// No function here takes a record, a payload, a handle's contents or a secret, and none is to
// be added.
package obs
