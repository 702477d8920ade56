package gauge_test

import (
	"testing"

	"flightline/e2e/gauge"
)

func TestMedian(t *testing.T) {
	for want, of := range map[float64][]float64{0: nil, 3: {9, 1, 3}, 2.5: {4, 1, 2, 3}} {
		if got := gauge.Median(of); got != want {
			t.Errorf("got %v of %v, want %v", got, of, want)
		}
	}
}
