// Package secrets finds planted passwords, tokens and keys where no secret may be: in logs, errors, handles, events,
// metrics and whatever else comes out of a test.
//
// A test configures what Plant returns in place of a password, goes wrong on purpose, and holds what came out against
// Absent. Afterwards `make secrets` runs internal/secrets/scan over the output of all tests, so that a secret which a test did
// not look for is found as well. Only made-up secrets are found: a marker says of itself what it is.
package secrets
