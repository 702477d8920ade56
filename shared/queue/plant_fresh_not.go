//go:build !plant_fresh

package queue

const plantAlwaysFresh = false
