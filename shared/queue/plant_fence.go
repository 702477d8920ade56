//go:build plant_fence

package queue

// plantNoFence does not fence payloads by run: a bug that the chaos harness must find.
const plantNoFence = true
