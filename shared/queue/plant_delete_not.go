//go:build !plant_delete

package queue

const plantDeleteFirst = false
