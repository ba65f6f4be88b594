// Package servicestest hands servers to tests: one per process that tests share, or one of
// their own to kill and restart.
//
// A package whose tests share servers stops them in its TestMain:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(servicestest.Main(m)) }
//
// A shared server is a user's own where UNISINK_TEST_KAFKA or UNISINK_TEST_POSTGRES names one;
// nothing is fetched then. Without one, a test whose server does not start fails. The only
// skipping is that of `go test -short`.
package servicestest
