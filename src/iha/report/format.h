// Numbers as people read them. Not for files that programs read: those want all digits.
#pragma once

#include <cstdint>
#include <string>

namespace iha::report {

std::string fixed(double value, int digits);  // fixed(0.98126, 3) = "0.981"; "nan", "inf", "-inf"
std::string significant(double value,
                        int digits);           // significant(1234.5, 3) = "1230"; trailing zeros stay away
std::string count(int64_t value);              // 1234567 = "1,234,567"
std::string si(double value, int digits = 3);  // 1.23e9 = "1.23 G"; for FLOPs and parameters
std::string bytes(double value);               // 1536 = "1.5 KiB"
std::string duration(double seconds);          // "4.5 ms", "12.3 s", "2 min 05 s", "3 h 20 min"
std::string percent(double fraction, int digits = 1);             // 0.513 = "51.3 %"
std::string with_spread(double mean, double spread, int digits);  // "0.981 ± 0.006"

}  // namespace iha::report
