//go:build !plant_strand

package queue

const plantStay = false
