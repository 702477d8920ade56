//go:build plant_strand

package queue

// plantStay keeps a process with a node that is cut off for 24 s: a bug that the chaos harness must find.
const plantStay = true
