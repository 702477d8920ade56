//go:build plant_close

package queue

// plantCloseAtOnce ends the subscription of a closed pull while a delivery may be on its way: a bug that the chaos harness must find.
const plantCloseAtOnce = true
