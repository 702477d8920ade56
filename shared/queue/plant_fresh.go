//go:build plant_fresh

package queue

// plantAlwaysFresh takes every delivery for a fresh one, however long the process was suspended: a bug that the chaos harness must find.
const plantAlwaysFresh = true
