# protocols --judge: protocols.txt first, then CSV of protocols, of one profile.
function expand(group, list,    n, i, word, all)
{
	n = split(group, word, " ")
	all = ""
	for (i = 1; i <= n; ++i)
		all = all " " (word[i] in members ? members[word[i]] : word[i])
	return split(all, list, " ")
}
function share(right, all) { return sprintf("%d of %d%s", right, all, all ? sprintf(" (%.0f %%)", 100 * right / all) : "") }
BEGIN {
	members["write/*"] = "write/send write/write"
	members["send/*"] = "send/send send/write"
	members["*/write"] = "send/write write/write"
	members["*/send"] = "send/send write/send"
	members["calls"] = "send/send send/write write/send write/write"
}
FNR == NR { if (!/^#/) line[++lines] = $0; next }
FNR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
{
	model[$at["shape"] " " $at["nodes"] " " $at["threads"] " " $at["window"] " " $at["value"], $at["way"]] = $at["Gb/s"]
}
END {
	for (l = 1; l <= lines; ++l) {
		split(line[l], f, "|")
		if (f[1] == "value") {
			n = expand(f[4], ways)
			for (i = 1; i <= n; ++i) {
				if (!((f[3], ways[i]) in model)) { ++missing; continue }
				ratio = model[f[3], ways[i]] / f[5]
				printf "value  %-4s %-20s %-12s published %5s  model %6.2f  %5.2f\n", f[2], f[3], ways[i], f[5], model[f[3], ways[i]], ratio
				off = ratio < 1 ? 1 / ratio : ratio
				for (j = values++; j > 0 && sorted[j] > off; --j) sorted[j + 1] = sorted[j]
				sorted[j + 1] = off
			}
			continue
		}
		n = expand(f[1] == "winner" ? f[4] : f[5], ways)
		if (f[1] == "winner") {
			m = expand(f[5], others)
			best = second = first = ""
			for (i = 1; i <= n; ++i) if ((f[3], ways[i]) in model && (best == "" || model[f[3], ways[i]] > best)) { best = model[f[3], ways[i]]; first = ways[i] }
			for (i = 1; i <= m; ++i) if ((f[3], others[i]) in model && (second == "" || model[f[3], others[i]] > second)) { second = model[f[3], others[i]]; after = others[i] }
			if (best == "" || second == "") { ++missing; continue }
			++winners
			right = best > second
			won += right
			printf "winner %-4s %-20s %-5s published %s before %s; model %s %.2f, %s %.2f\n", f[2], f[3], right ? "yes" : "no", f[4], f[5], first, best, after, second
			continue
		}
		for (i = 1; i <= n; ++i) {
			if (!((f[3], ways[i]) in model) || !((f[4], ways[i]) in model)) { ++missing; continue }
			a = model[f[3], ways[i]]
			b = model[f[4], ways[i]]
			right = f[1] == "up" ? b > a : b < a
			++directions
			followed += right
			printf "%-6s %-4s %-20s to %-20s %-12s %-5s model %6.2f to %6.2f\n", f[1], f[2], f[3], f[4], ways[i], right ? "yes" : "no", a, b
		}
	}
	printf "\nThe published winner is ahead in %s. The direction is right in %s.\n", share(won, winners), share(followed, directions)
	if (values) printf "Of %d values, the middle one is off by %.2f, three quarters by %.2f at most, the last by %.2f.\n", values, sorted[int((values + 1) / 2)], sorted[int((3 * values + 3) / 4)], sorted[values]
	if (missing) printf "%d comparisons lack a result.\n", missing
}
