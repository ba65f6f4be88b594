// Package twophase makes a pipeline's sink of four functions: begin, pre-commit, commit and abort.
package twophase
