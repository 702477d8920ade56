package autoscaler

import (
	"fmt"
	"time"

	"flightline/shared/endpoint"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ep is an endpoint with a fleet of 0 to 3, queue delay 4 s and 5 s idle time.
func ep(change ...func(*endpoint.Endpoint)) endpoint.Endpoint {
	e := endpoint.Endpoint{ID: "ep", Fleet: endpoint.Fleet{Driver: "process", Command: []string{"worker"}}}
	e, err := e.Complete()
	if err != nil {
		panic(err)
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func bounds(least, most int) func(*endpoint.Endpoint) {
	return func(e *endpoint.Endpoint) { e.WorkersMin, e.WorkersMax = least, most }
}

func requests(perWorker int) func(*endpoint.Endpoint) {
	return func(e *endpoint.Endpoint) { e.ScalerType, e.ScalerValue = endpoint.RequestCount, perWorker }
}

func paused(e *endpoint.Endpoint) { e.PausedUntil = noon.Add(time.Hour) }

func elsewhere(e *endpoint.Endpoint) { e.Fleet.Driver = "external" }

// crew makes members w0, w1, … that have been in their states for this long.
func crew(long time.Duration, states ...state) []member {
	var all []member
	for i, s := range states {
		w := member{id: fmt.Sprint("w", i), state: s, since: noon.Add(-long), rested: long}
		if s == busy {
			w.jobs = 1
		}
		all = append(all, w)
	}
	return all
}

func stale(all []member) []member {
	for i := range all {
		all[i].stale = true
	}
	return all
}

func locked(all []member) []member {
	for i := range all {
		all[i].locked = true
	}
	return all
}
