package streaming

import (
	"testing"

	"flightline/e2e/site"
)

func TestMain(m *testing.M) { site.Main(m) }
