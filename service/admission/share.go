package admission

// Limits bounds a resource. 0 means no limit. Under a Total, a principal has a share: it may hold
// at most four times what is still free, which is 80 % of Total if it is alone, so that there is
// always room for the next principal.
type Limits struct {
	// Total limits what all principals hold.
	Total int64
	// Each limits what one principal holds.
	Each int64
}

// shareOfFree is how many times as much as is left a principal may hold. A principal that is
// alone gets 80 %, two get 44 % each: there is always something left for the next. The unit that
// fit adds to what is left matters for small limits only, whose last unit could not be used.
const shareOfFree = 4

// verdict says whether a demand fits, and if not, why.
type verdict uint8

const (
	fits     verdict = iota
	ownShare         // its principal would hold more than it may, or than all others together
	full             // others hold too much
	tooMuch          // it would not fit if nothing were held
)

// judge decides on a demand of a principal that holds mine of the used total. A demand that is
// the last of its call may take all that is left: the call ends soon then, and what it holds is
// free again.
func judge(l Limits, used, mine, demand int64, last bool) verdict {
	switch {
	case fit(l, used, mine, demand, last):
		return fits
	case !fit(l, 0, 0, demand, last):
		return tooMuch
	case l.Each > 0 && mine+demand > l.Each, mine+demand > used-mine:
		return ownShare
	}
	return full
}

func fit(l Limits, used, mine, demand int64, last bool) bool {
	if l.Each > 0 && mine+demand > l.Each {
		return false
	}
	if l.Total == 0 {
		return true
	}
	left := l.Total - used - demand
	if used == 0 || last {
		return left >= 0
	}
	return left >= 0 && mine+demand <= shareOfFree*(left+1)
}
