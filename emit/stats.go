package emit

// Stats is what one stream's emission did so far.
type Stats struct {
	Mode           Mode   // the mode of the latest pass; Auto if there was none
	Fallbacks      uint64 // how often a source could not serve the mode asked for
	FallbackReason string // why, the latest time

	Calls     uint64 // calls of sources
	Passes    uint64 // passes that asked a source
	Datagrams uint64 // datagrams that hold bytes of a source
	Bytes     uint64 // bytes of sources that were put into packets for the first time
	Asked     uint64 // bytes sources were asked for: the sum of len(dst)
	Reread    uint64 // bytes that were read again because they were lost
	NotReady  uint64 // answers of ErrNotReady
}

// DatagramsPerCall is how many datagrams one call of a source filled on average:
// near MaxDatagrams when volleys work. It is 0 before the first call.
func (s Stats) DatagramsPerCall() float64 {
	if s.Calls == 0 {
		return 0
	}
	return float64(s.Datagrams) / float64(s.Calls)
}
