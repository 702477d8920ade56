//go:build !plant_ttl

package queue

const plantShortTTL = false
