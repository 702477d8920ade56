package security

import (
	"testing"

	"flightline/shared/testenv/program"
)

func TestMain(m *testing.M) { program.Main(m) }
