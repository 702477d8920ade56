//go:build !plant_orphans

package autoscaler

const plantNoOrphans = false
