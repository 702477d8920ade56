//go:build plant_cas

package queue

// plantNoCompare writes without compare-and-set: a bug that the chaos harness must find.
const plantNoCompare = true
