// Package decisions measures coordinators alone, without brokers: how long nobody is told a decision when the leader
// is killed, and what many scopes cost.
package decisions
