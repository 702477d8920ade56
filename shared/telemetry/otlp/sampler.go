package otlp

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// sampler decides which traces are recorded, as the samplers of the standard
// do that the variables can name. The zero value takes none.
type sampler struct {
	// follow leaves it to the parent, if there is one.
	follow bool
	// below takes the traces whose number is less. Numbers have 63 bits.
	below uint64
}

const everything = 1 << 63

// takes reports whether a span is recorded that has this parent.
func (s sampler) takes(parent trace.SpanContext, id trace.TraceID) bool {
	if s.follow && parent.IsValid() {
		return parent.IsSampled()
	}
	return binary.BigEndian.Uint64(id[8:])>>1 < s.below
}

// samplerOf follows the caller, and begins a trace where there is none, unless
// it is told otherwise.
func samplerOf(name, arg string) (s sampler, err error) {
	name, s.follow = strings.CutPrefix(strings.ToLower(name), "parentbased_")
	switch name {
	case "":
		s.below, s.follow = everything, true
	case "always_on":
		s.below = everything
	case "always_off":
	case "traceidratio":
		ratio := 1.0
		if arg != "" {
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return s, fmt.Errorf("%w: OTEL_TRACES_SAMPLER_ARG %q: must be a number from 0 to 1", ErrConfig, arg)
			}
		}
		s.below = uint64(ratio * everything)
	default:
		return s, fmt.Errorf("%w: OTEL_TRACES_SAMPLER %q is none of always_on, always_off, traceidratio, and these with parentbased_", ErrConfig, name)
	}
	return s, nil
}
