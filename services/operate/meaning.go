package operate

import "flightline/streams"

// MeaningOfLoss says what it means for people that messages of a stream are lost.
func MeaningOfLoss(stream string) string {
	part, ours := streams.PartOf(stream)
	if !ours {
		return "messages of a stream that is not Flightline's are lost"
	}
	return map[streams.Part]string{
		streams.PartThings:      "endpoints, keys or other settings are gone, or as they were before their last change",
		streams.PartPositions:   "events are told again and recognised; nothing is lost",
		streams.PartCounts:      "totals of an endpoint may be too low",
		streams.PartEvents:      "events, or webhooks that waited for their delivery, are lost",
		streams.PartUndelivered: "webhooks that were put aside, or their log, are lost",
		streams.PartPayloads:    "large inputs or outputs are lost: a job that needs one fails",
		streams.PartJobs:        "jobs that waited there are lost; jobs that ran are kept until their deadline",
		streams.PartRecords:     "jobs that ended are unknown or as before their last change, and a running job may run again",
		streams.PartOutput:      "chunks of streams are lost",
	}[part]
}
