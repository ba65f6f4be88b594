// Package services runs real Apache Kafka and real PostgreSQL for tests, benchmarks and the
// demo, on a machine that has Go, Java and Maven, and no container engine.
//
// [Kafka] and [Postgres] fetch what they need by artifact name, once, into a cache outside the
// tree, start servers on free ports of the loopback interface, and return when the servers
// answer. What they return can be killed with -9, paused, restarted on the same data, and
// stopped. When the process that started them dies in whatever way, the servers die with it
// (on Linux), and what it had in temporary directories goes at the next start.
//
// Tests take their servers from package servicestest, which shares one server among the tests
// of a process, or takes a user's own from UNISINK_TEST_KAFKA and UNISINK_TEST_POSTGRES.
//
// The cache is $UNISINK_SERVICES_CACHE, else $XDG_CACHE_HOME/unisink/services, else the same
// below the user's cache directory. It may be deleted at any time when no server runs.
//
// DESIGN.md has the settings, why they differ from the defaults, and what was measured.
package services
