package ratelimit_test

import (
	"fmt"
	"time"

	"flightline/shared/ratelimit"
)

// Two requests in any 10 s pass, the third is refused until the first is 10 s old.
func ExampleGate() {
	var gate ratelimit.Gate
	now := time.Duration(0)
	clock := func() time.Duration { return now }
	bounds := ratelimit.Bounds{Requests: 2}
	for range 3 {
		v := gate.Enter(clock, bounds)
		fmt.Println(v.Refused == ratelimit.Passed, v.Left, v.Reset)
		if v.Refused == ratelimit.Passed {
			gate.Leave() // the request was answered
		}
		now += time.Second
	}
	now = 10 * time.Second
	fmt.Println(gate.Enter(clock, bounds).Refused == ratelimit.Passed)
	// Output:
	// true 1 10s
	// true 0 9s
	// false 0 8s
	// true
}

// Servers share a bound evenly, rounded up.
func ExampleBounds_Share() {
	fmt.Println(ratelimit.Defaults()[ratelimit.Run].Share(3))
	// Output: {334 67}
}

func ExampleParse() {
	table, err := ratelimit.Parse([]byte(`{"run": {"requests": 5000}, "status": null}`))
	fmt.Println(table[ratelimit.Run], table["status"], err)
	// Output: {5000 200} {0 0} <nil>
}

func ExampleParseQuota() {
	quota, err := ratelimit.ParseQuota("requests=500,concurrent=20")
	fmt.Println(quota, err)
	// Output: concurrent=20,requests=500 <nil>
}
