//go:build plant_orphans

package autoscaler

// plantNoOrphans finds no job that lost its worker: a bug that the chaos harness must find.
const plantNoOrphans = true
