// Package rig is what the harnesses that run real processes share: builds of the binary, waiting with
// a limit, orders written to a broker, what `unisink verify` and the broker say at the end, and logs read
// while they grow.
package rig
