//go:build !(plant_ask || plant_cas || plant_close || plant_delete || plant_fence || plant_fresh || plant_guard || plant_strand || plant_ttl)

package queue

const (
	plantNoAsk       = false
	plantNoCompare   = false
	plantCloseAtOnce = false
	plantDeleteFirst = false
	plantNoFence     = false
	plantAlwaysFresh = false
	plantNoGuard     = false
	plantStay        = false
	plantShortTTL    = false
)
