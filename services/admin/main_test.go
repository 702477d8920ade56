package admin_test

import (
	"testing"

	"go.uber.org/goleak"

	"flightline/shared/testenv"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	goleak.VerifyTestMain(m)
}
