// Package veil says which record an error is about without showing what is in it. Errors reach logs, metrics and the
// causes that the group keeps, and records are money and may be personal.
package veil
