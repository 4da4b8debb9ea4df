package description

import "time"

const (
	rttWeight  = 0.2 // of the newest sample in the average
	rttSamples = 10  // that the minimum looks back on
)

// RTT holds what is known of the time that a server takes to answer: a moving average and the
// minimum of the last samples. The zero value has no sample.
type RTT struct {
	average time.Duration
	recent  [rttSamples]time.Duration
	count   int
}

// Add returns the value with one more sample. It ignores a negative sample, which a clock that was
// set back gives.
func (r RTT) Add(sample time.Duration) RTT {
	if sample < 0 {
		return r
	}
	if r.count == 0 {
		r.average = sample
	} else {
		r.average = ewma(r.average, sample)
	}
	r.recent[r.count%rttSamples] = sample
	r.count++
	return r
}

// ewma returns the new moving average after one more sample. An average of 0 is an average like any
// other.
func ewma(average, sample time.Duration) time.Duration {
	return time.Duration(rttWeight*float64(sample) + (1-rttWeight)*float64(average))
}

// Average returns the exponentially weighted moving average, 0 without a sample.
func (r RTT) Average() time.Duration { return r.average }

// Min returns the least of the last samples, 0 until there are two.
func (r RTT) Min() time.Duration {
	if r.count < 2 {
		return 0
	}
	least := r.recent[0]
	for _, sample := range r.recent[:min(r.count, rttSamples)] {
		least = min(least, sample)
	}
	return least
}
