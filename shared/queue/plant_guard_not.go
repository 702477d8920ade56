//go:build !plant_guard

package queue

const plantNoGuard = false
