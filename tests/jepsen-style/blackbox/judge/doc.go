// Package judge gives the verdict over the history of a black-box run: the rules of package check that
// can be judged from outside, and some of its own:
//
//	register  the calls about one transaction are as if made one after the other (porcupine)
//	money     what is committed of each transfer adds up to nothing, and so does everything
//	order     in each resource epochs become visible in order, and none that was not decided
//
// Each rule also counts what it had before it: a rule without evidence is not kept, it is not judged.
package judge
