//go:build !plant_fence

package queue

const plantNoFence = false
