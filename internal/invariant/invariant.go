package invariant

import "fmt"

// Violation is the value that Must, Check and Unreachable panic with. It exists so that a
// test can tell a broken invariant from any other panic; no other code recovers it.
type Violation struct {
	// Message says what should have held and does not, with the values that show it.
	Message string
}

// Error returns the message behind a fixed prefix, which is also what a crash prints.
func (v Violation) Error() string { return "invariant violated: " + v.Message }

// Must panics with a [Violation] unless ok. Format and args say what did not hold, as for
// fmt.Sprintf. The arguments are evaluated on every call, so on a path that is taken for each
// record put the condition in an if and call [Unreachable] inside it.
func Must(ok bool, format string, args ...any) {
	if !ok {
		panic(Violation{Message: fmt.Sprintf(format, args...)})
	}
}

// Unreachable panics with a [Violation]. It stands where no path may lead: the default of a
// switch over every state, or the body of an if that Must would make too dear.
func Unreachable(format string, args ...any) {
	panic(Violation{Message: fmt.Sprintf(format, args...)})
}

// Check runs f and panics with a [Violation] if it returns an error. In builds where
// [Enabled] is false it does not run f at all, so f must have no effect of its own.
func Check(f func() error) {
	if !Enabled {
		return
	}
	if err := f(); err != nil {
		panic(Violation{Message: err.Error()})
	}
}
