//go:build !plant_cas

package queue

const plantNoCompare = false
