package bus_test

import (
	"testing"

	"flightline/shared/testenv"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	m.Run()
}
