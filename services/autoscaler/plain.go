package autoscaler

import (
	"strings"

	"flightline/shared/pod"
)

// plain is what a driver says of a pod that cannot be started, without what
// whoever reads it in the pod's record knows already.
func plain(id string, err error) string {
	text := strings.TrimPrefix(err.Error(), "start pod "+id+": ")
	return strings.ReplaceAll(text, pod.ErrInvalid.Error()+": ", "")
}
