//go:build !plant_ask

package queue

const plantNoAsk = false
