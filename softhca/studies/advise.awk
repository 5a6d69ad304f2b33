# advise --judge: CSV of advise. What pt2p_info --advise names first, beside what was measured: of all ways, and of calls only.
function ask(cell,    f, command, line, words, order, n)
{
	split(cell, f, " ")
	command = info " --json --advise shape=" f[3] " m=" f[4] " s=" f[5] " servers=" f[6] " window=" f[7] " bytes=" f[8] " input=36 device=" f[2]
	order = ""
	while ((command | getline line) > 0)
		if (line ~ /"way":/) {
			split(line, words, "\"")
			order = order words[4] ","
		}
	if (close(command)) { print "pt2p_info failed: " command > "/dev/stderr"; failed = 1; exit }
	return order
}
function judge(cell, what, gets,    ways, n, i, w, best, first)
{
	n = split(order, ways, ",")
	best = first = ""
	for (i = 1; i < n; ++i) {
		w = ways[i]
		if (!((cell, w) in rate) || (!gets && w ~ / read$/)) continue
		if (first == "") first = w
		if (best == "" || rate[cell, w] > rate[cell, best]) best = w
	}
	if (first == "" || !rate[cell, best]) return
	++cells[what]
	share = rate[cell, first] / rate[cell, best]
	good[what] += (share >= 0.95 ? 1 : 0)
	if (share < worst[what] || !worst[what]) worst[what] = share
	printf "%-4s %-52s %-20s %.3f  advised %-20s %.3f  %.2f\n", (share >= 0.95 ? "yes" : "NO"), cell (gets ? "" : " (calls)"), best, rate[cell, best], first, rate[cell, first], share
}
NR == 1 { next }
{
	cell = $1
	for (i = 2; i <= 8; ++i) cell = cell " " $i
	if (!(cell in seen)) { seen[cell]; list[++count] = cell }
	rate[cell, $9 " " $10] = $11
}
END {
	for (c = 1; c <= count && !failed; ++c) {
		order = ask(list[c])
		split(list[c], f, " ")
		judge(list[c], f[1] ", all ways", 1)
		judge(list[c], f[1] ", calls only", 0)
	}
	if (failed) exit 1
	print ""
	for (what in cells)
		printf "%-20s best or within 5 %% in %d of %d cells (%.0f %%), worst %.2f\n", what, good[what], cells[what], 100 * good[what] / cells[what], worst[what]
}
