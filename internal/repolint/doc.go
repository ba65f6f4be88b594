// Package repolint holds tests about the repository itself: who imports whom, which third
// party is used where, that packages say what they are, how large things have grown, and
// which words and habits stay out.
//
// `make repolint` runs them. Each rule is a function from a [Repo] to its [Finding]s and
// knows nothing of disks, so that its test can hand it a repository with exactly the mistake
// it must see: a rule that cannot fail guards nothing.
//
// What a rule forbids can be allowed in one place only, and with a reason. Sizes are allowed
// by a paragraph or section "Sizes" in the room's DESIGN.md that names the thing in
// backquotes; a sleep in a test by a comment on its line. The other rules have no exceptions
// besides those in their tables, which say why.
package repolint
