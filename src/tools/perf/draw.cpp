// SPDX-License-Identifier: BSD-3-Clause
// pt2p_perf --tune-draw: a trace of the tuner as a picture. Above, L/N with the band in which the period stays; below,
// the signal period; a colour for each peer and kind of payload.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "tools/perf/perf.hpp"
#include "transports/verbs/tuning/period.hpp"

namespace pt2p::perf {

namespace {

constexpr double kLeft = 70, kWidth = 880, kRatioTop = 40, kRatioHeight = 260, kPeriodTop = 350, kPeriodHeight = 200;
constexpr double kPageWidth = kLeft + kWidth + 20, kPeriodBottom = kPeriodTop + kPeriodHeight;
constexpr double kLowest = 1. / 64; // of L/N; what is below is drawn there
constexpr size_t kMaxDots = 4000;   // for one series
// Standard values of PT2P_TUNE_RAISE_BELOW and PT2P_TUNE_CUT_ABOVE.
constexpr double kRaiseBelow = tune::Band{}.raise_below, kCutAbove = tune::Band{}.cut_above;
constexpr const char *kAxis = "#000000", *kGrid = "#eeeeee";
constexpr const char *kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"};

struct Observation {
	double ms, period, ratio; // ratio 0: of N
};
using Series = std::map<std::string, std::vector<Observation>>; // by peer and kind

Series read(const std::string &path)
{
	std::ifstream file(path);
	std::string line;
	if (!file)
		throw Failure{path + ": " + strerror(errno)};
	if (!std::getline(file, line) || line != "time_ns,peer,kind,period,N_ns,L_ns,ratio")
		throw Failure{path + ": this is no trace of PT2P_TUNE_TRACE"};
	Series all;
	for (size_t number = 2; std::getline(file, line); ++number) {
		std::vector<std::string> fields;
		std::istringstream parts(line);
		for (std::string field; std::getline(parts, field, ',');)
			fields.push_back(field);
		fields.resize(7);
		try {
			all["rank " + std::to_string(std::stoi(fields[1])) + ", " + fields[2]].push_back(
			    {std::stod(fields[0]) * 1e-6, std::stod(fields[3]), fields[6].empty() ? 0 : std::stod(fields[6])});
		} catch (const std::exception &) {
			throw Failure{path + ": line " + std::to_string(number) + " is damaged: " + line};
		}
	}
	if (all.empty())
		throw Failure{path + ": nothing was observed"};
	return all;
}

std::string text(double x, double y, const char *anchor, const std::string &words)
{
	char begin[128];
	snprintf(begin, sizeof begin, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	std::string escaped;
	for (char c : words)
		escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
	return begin + escaped + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char *colour)
{
	char all[192];
	snprintf(all, sizeof all, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2,
	         colour);
	return all;
}

// Distance of round numbers of which `most` at most lie within `range`.
double round_step(double range, int most)
{
	const double least = range / most, decade = std::pow(10, std::floor(std::log10(least)));
	for (const double step : {1., 2., 5.})
		if (step * decade >= least)
			return step * decade;
	return 10 * decade;
}

std::string plain_number(double value)
{
	char all[32];
	snprintf(all, sizeof all, "%.6g", value);
	return all;
}

// Three digits that matter.
std::string short_number(double value)
{
	char all[32];
	snprintf(all, sizeof all, "%.3g", value);
	return all;
}

// The picture of a trace: its scales, and the SVG.
class Picture {
public:
	explicit Picture(const Series &series) : series_(series)
	{
		for (const auto &[name, observations] : series)
			for (const Observation &o : observations) {
				first_ = std::min(first_, o.ms);
				last_ = std::max(last_, o.ms);
				longest_ = std::max(longest_, o.period);
				highest_ = std::max(highest_, o.ratio);
				while (o.ratio > 0 && lowest_ > std::max(o.ratio, kLowest))
					lowest_ /= 2;
			}
	}

	std::string draw()
	{
		const double page_height = kPeriodBottom + 65 + 18 * static_cast<double>(series_.size());
		svg_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << kPageWidth << "\" height=\"" << page_height
		     << "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
		        "fill=\"#ffffff\"/>\n";
		draw_ratio_axis();
		draw_period_axis();
		draw_time_axis();
		size_t n = 0;
		for (const auto &[name, observations] : series_)
			draw_series(name, observations, n++);
		svg_ << "</svg>\n";
		return svg_.str();
	}

private:
	double x(double ms) const { return kLeft + kWidth * (ms - first_) / std::max(last_ - first_, 1e-6); }
	double y_ratio(double ratio) const
	{
		return kRatioTop +
		       kRatioHeight * (1 - std::log(std::max(ratio, lowest_) / lowest_) / std::log(highest_ / lowest_));
	}
	double y_period(double period) const { return kPeriodBottom - kPeriodHeight * period / longest_; }

	void draw_ratio_axis()
	{
		svg_ << text(kLeft, 20, "start",
		             "L/N, last-operation latency over normal latency; in the grey band, " + short_number(kRaiseBelow) +
		                 " to " + short_number(kCutAbove) + ", the period stays as it is");
		svg_ << text(kLeft, kPeriodTop - 15, "start", "signal period, work requests");
		svg_ << "<rect x=\"" << kLeft << "\" y=\"" << y_ratio(kCutAbove) << "\" width=\"" << kWidth << "\" height=\""
		     << y_ratio(kRaiseBelow) - y_ratio(kCutAbove) << "\" fill=\"#dddddd\"/>\n";
		const double factor = highest_ / lowest_ > 4096 ? 4 : 2;
		for (double ratio = lowest_; ratio <= highest_; ratio *= factor)
			svg_ << line(kLeft - 4, y_ratio(ratio), kLeft + kWidth, y_ratio(ratio), kGrid)
			     << text(kLeft - 8, y_ratio(ratio) + 4, "end", short_number(ratio));
	}

	void draw_period_axis()
	{
		const double step = std::max(round_step(longest_, 6), 1.);
		for (double period = 0; period <= longest_; period += step)
			svg_ << line(kLeft - 4, y_period(period), kLeft + kWidth, y_period(period), kGrid)
			     << text(kLeft - 8, y_period(period) + 4, "end", plain_number(period));
	}

	// And the lines of all axes.
	void draw_time_axis()
	{
		const double unit = last_ - first_ >= 10'000 ? 1000 : 1; // ms
		const double step = unit * round_step(std::max(last_ - first_, 1e-3) / unit, 10);
		for (double ms = std::ceil(first_ / step) * step; ms <= last_; ms += step)
			svg_ << line(x(ms), kPeriodBottom, x(ms), kPeriodBottom + 4, kAxis)
			     << text(x(ms), kPeriodBottom + 18, "middle", plain_number(ms / unit));
		svg_ << text(kLeft + kWidth, kPeriodBottom + 36, "end",
		             unit == 1 ? "time since the start, ms" : "time since the start, s");
		for (const double bottom : {kRatioTop + kRatioHeight, kPeriodBottom})
			svg_ << line(kLeft, bottom, kLeft + kWidth, bottom, kAxis);
		svg_ << line(kLeft, kRatioTop, kLeft, kRatioTop + kRatioHeight, kAxis)
		     << line(kLeft, kPeriodTop, kLeft, kPeriodBottom, kAxis);
	}

	void draw_series(const std::string &name, const std::vector<Observation> &observations, size_t n)
	{
		const char *colour = kColours[n % std::size(kColours)];
		const double y = kPeriodBottom + 50 + 18 * static_cast<double>(n);
		svg_ << "<g fill=\"" << colour << "\">\n<rect x=\"" << kLeft << "\" y=\"" << y - 9
		     << "\" width=\"10\" height=\"10\"/>\n"
		     << text(kLeft + 16, y, "start", name + ": " + std::to_string(observations.size()) + " observations");
		const size_t step = observations.size() / kMaxDots + 1;
		for (size_t i = 0; i < observations.size(); i += step)
			if (const Observation &o = observations[i]; o.ratio > 0)
				svg_ << "<circle cx=\"" << x(o.ms) << "\" cy=\"" << y_ratio(o.ratio) << "\" r=\"1.5\"/>\n";
		svg_ << "</g>\n<path fill=\"none\" stroke=\"" << colour << "\" d=\"M" << x(observations[0].ms) << " "
		     << y_period(observations[0].period);
		for (size_t i = 1; i < observations.size(); ++i)
			if (observations[i].period != observations[i - 1].period || i + 1 == observations.size())
				svg_ << "H" << x(observations[i].ms) << "V" << y_period(observations[i].period);
		svg_ << "\"/>\n";
	}

	const Series &series_;
	double first_ = HUGE_VAL, last_ = 0, longest_ = 1, lowest_ = 0.5, highest_ = 2 * kCutAbove;
	std::ostringstream svg_;
};

} // namespace

std::string drawing(const std::string &path)
{
	const Series series = read(path);
	return Picture(series).draw();
}

} // namespace pt2p::perf
