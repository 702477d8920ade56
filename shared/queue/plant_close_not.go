//go:build !plant_close

package queue

const plantCloseAtOnce = false
