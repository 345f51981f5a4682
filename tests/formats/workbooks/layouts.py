# ruff: noqa: E501, RUF001 - lines of files as they are
"""Files as instruments export them and as Excel users keep them, and how each must be understood.

This list was written before the reader. No file is a copy: the layouts follow the instruments'
exports and the kinds of supplementary files that are named, the numbers are made up.
"""

import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pint
from pyomo.environ import units as pyomo_units

from igpe.core.errors import DataError
from igpe.formats.workbooks.cells import Question
from igpe.formats.workbooks.reading import read_workbook
from igpe.formats.workbooks.workbook import Workbook


@dataclass(frozen=True)
class Layout:
    """A file, and what it says.

    like      the instrument, program or kind of publication
    text      of the file; or of each sheet, where | ends a cell, @ begins a date, time or duration,
              ' a text, % a number shown in per cent, = a formula that was never calculated;
              ~ begins a hidden row and ends the name of a hidden sheet
    runs      run -> table: the unit of the times (t: none), names with [units], then rows that begin
              with " / ", - for no value; units that are not named are not compared
    given     run -> conditions in the unit they are used in
    sigma     names whose standard deviations are read
    marks     cells with limits of detection
    kinds     name -> what a value means, where it is no state: "conversion of A"
    warns     parts of warnings
    refused   part of the message; the file is not read
    choices   parts of the choices that are offered; the file is ambiguous
    """

    like: str
    text: str | Mapping[str, str]
    runs: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    sigma: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    warns: tuple[str, ...] = ()
    refused: str = ""
    choices: tuple[str, ...] = ()
    ending: str = ".csv"
    encoding: str = "utf-8"

    def write(self, folder: Path, name: str) -> Path:
        """The file."""
        if isinstance(self.text, str):
            path = folder / f"{name}{self.ending}"
            path.write_bytes(self.text.encode(self.encoding))
            return path
        path = folder / f"{name}.xlsx"
        book = _workbook()
        for title, text in self.text.items():
            sheet = book.create_sheet(title.rstrip("~"))
            sheet.sheet_state = "hidden" if title.endswith("~") else "visible"
            for row, line in enumerate(text.splitlines(), start=1):
                sheet.row_dimensions[row].hidden = line.startswith("~")
                for column, cell in enumerate(line.lstrip("~").split("|"), start=1):
                    _fill(sheet.cell(row, column), cell.strip())
        book.save(path)
        return path


def _workbook() -> Any:
    import openpyxl  # noqa: PLC0415 - an extra

    book = openpyxl.Workbook()
    book.remove(book.active)
    return book


def _fill(cell: Any, text: str) -> None:
    if text.startswith("'"):
        cell.value = text[1:]
    elif text.startswith("@+"):
        hours, minutes = map(int, text[2:].split(":"))
        cell.value = timedelta(hours=hours, minutes=minutes)
    elif text.startswith("@"):
        cell.value = (
            datetime.fromisoformat(text[1:]) if "-" in text else time.fromisoformat(text[1:])
        )
    elif text.startswith("%"):
        cell.value, cell.number_format = float(text[1:]) / 100, "0.0%"
    elif text:
        try:
            cell.value = float(text)
        except ValueError:
            cell.value = text


LAYOUTS: dict[str, Layout] = {}

# Instruments -------------------------------------------------------------------------------------

LAYOUTS["empower, amounts by component"] = Layout(
    "HPLC: Waters Empower, component table as text",
    "Sample Set Name:\tKinetics_07\nReported by User:\tSystem\n\n"
    "SampleName\tVial\tInj\tReaction Time (min)\tName\tRetention Time (min)\tArea\tAmount\tUnits\n"
    "S1\t1\t1\t0\tEduct\t4.21\t123456\t0.500\tmmol/L\n"
    "S1\t1\t1\t0\tProduct\t6.02\t0\t0.000\tmmol/L\n"
    "S2\t2\t1\t10\tEduct\t4.22\t98765\t0.400\tmmol/L\n"
    "S2\t2\t1\t10\tProduct\t6.03\t24000\t0.098\tmmol/L\n"
    "S3\t3\t1\t20\tEduct\t4.20\t79012\t0.320\tmmol/L\n"
    "S3\t3\t1\t20\tProduct\t6.01\t43000\t0.176\tmmol/L\n",
    runs={"": "min Educt[mmol/L] Product[mmol/L] / 0 .5 0 / 10 .4 .098 / 20 .32 .176"},
    ending=".txt",
)
LAYOUTS["empower, retention times alone"] = Layout(
    "HPLC: Waters Empower, peak results without reaction times",
    "SampleName\tName\tRetention Time (min)\tArea\t% Area\n"
    "S1\tEduct\t4.21\t123456\t88.1\nS1\tProduct\t6.02\t16700\t11.9\n"
    "S2\tEduct\t4.22\t98765\t70.2\nS2\tProduct\t6.03\t41900\t29.8\n",
    refused="Retention Time",
    ending=".txt",
)
LAYOUTS["chemstation report"] = Layout(
    "HPLC: Agilent ChemStation, REPORT01.CSV of one injection (UTF-16)",
    "1,4.213,BV,0.0812,1.23456E3,235.1,88.1\n2,6.021,VB,0.0901,1.67E2,28.2,11.9\n",
    refused="no header",
    encoding="utf-16",
)
LAYOUTS["chromeleon"] = Layout(
    "HPLC: Thermo Chromeleon, summary sheet with component rows above the columns",
    {
        "Summary": "Chromeleon Summary Report\nSequence:|Hydrolysis_2\nColumn temperature:|30 °C\n\n"
        "No.|Injection Name|Reaction time|Amount|Amount\n||min|mmol/L|mmol/L\n|||Ester|Acid\n"
        "1|t00|0|10|0\n2|t05|5|8.2|1.7\n3|t10|10|6.7|3.2\n4|t20|20|4.5|5.4\n"
    },
    runs={"": "min Ester[mmol/L] Acid[mmol/L] / 0 10 0 / 5 8.2 1.7 / 10 6.7 3.2 / 20 4.5 5.4"},
)
LAYOUTS["labsolutions batch table"] = Layout(
    "HPLC: Shimadzu LabSolutions, quantitative results of a batch with statistics below",
    "Title;Quantitative results\nBatch File;C:\\LabSolutions\\Data\\run12.lcb\n\n"
    "Data Filename;Sampling time / h;Conc. A / mmol L-1;Conc. B / mmol L-1\n"
    "a_01.lcd;0,0;50,2;0,0\na_02.lcd;0,5;41,0;8,9\na_03.lcd;1,0;33,6;16,3\na_04.lcd;2,0;22,4;27,5\n"
    "Average;;36,8;13,2\n%RSD;;31,2;81,0\nMaximum;;50,2;27,5\nMinimum;;22,4;0,0\n"
    "Standard Deviation;;11,5;10,7\n",
    runs={"": "h Conc_A[mmol/L] Conc_B / 0 50.2 0 / .5 41 8.9 / 1 33.6 16.3 / 2 22.4 27.5"},
)
LAYOUTS["gc area per cent"] = Layout(
    "GC-FID: area per cent over time",
    "t [min],Area% educt,Area% product\n0,100,0\n15,71.2,28.8\n30,50.9,49.1\n60,25.5,74.5\n",
    runs={"": "min Area_educt Area_product / 0 100 0 / 15 71.2 28.8 / 30 50.9 49.1 / 60 25.5 74.5"},
    kinds={"Area_educt": "area", "Area_product": "area"},
)
LAYOUTS["gc with internal standard"] = Layout(
    "GC: peak areas beside an internal standard",
    "Time / min;Area limonene;Area carveol;Area ISTD\n"
    "0;10234;0;5021\n30;8012;1987;5011\n60;6290;3702;5034\n120;3871;6105;5018\n",
    runs={
        "": "min Area_limonene Area_carveol Area_ISTD / 0 10234 0 5021 / 30 8012 1987 5011 / "
        "60 6290 3702 5034 / 120 3871 6105 5018"
    },
    kinds={"Area_limonene": "area", "Area_carveol": "area", "Area_ISTD": "area"},
)
LAYOUTS["ic ir trends"] = Layout(
    "ReactIR: Mettler Toledo iC IR, trends as CSV",
    "Relative Time,Peak at 1740 cm-1,Peak at 1715 cm-1\n"
    "00:00:00,0.512,0.010\n00:02:00,0.431,0.089\n00:04:00,0.362,0.156\n00:06:00,0.305,0.213\n",
    runs={
        "": "min Peak_at_1740_cm_1 Peak_at_1715_cm_1 / 0 .512 .01 / 2 .431 .089 / 4 .362 .156 / "
        "6 .305 .213"
    },
)
LAYOUTS["easymax"] = Layout(
    "EasyMax: Mettler Toledo iControl, trends with a row of units and two temperatures",
    {
        "Trends": "Experiment|EasyMax-17\nUser|Lab 2\n\nRelative Time|Tr|Tj|R|Conductivity\n"
        "hh:mm:ss|°C|°C|rpm|mS/cm\n@00:00:00|25.1|25|400|1.20\n@00:10:00|26.0|27|400|1.35\n"
        "@00:20:00|27.2|29|400|1.52\n@00:30:00|28.1|30|400|1.66\n"
    },
    runs={"": "min Conductivity / 0 1.2 / 10 1.35 / 20 1.52 / 30 1.66"},
    given={"": {"R": 400.0}},
    inputs=("Tr", "Tj"),
)
LAYOUTS["rc1"] = Layout(
    "RC1: Mettler Toledo reaction calorimeter, German export with decimal commas",
    "Versuch\tRC1_0412\nMasse\t0,85 kg\n\nZeit\tTr\tTj\tqr_hf\ns\t°C\t°C\tW\n"
    "0\t50,0\t48,9\t0,2\n60\t50,1\t45,2\t12,7\n120\t50,1\t44,8\t10,9\n180\t50,0\t45,9\t8,1\n",
    runs={"": "s qr_hf[W] / 0 .2 / 60 12.7 / 120 10.9 / 180 8.1"},
    given={"": {"Masse": 0.85}},
    inputs=("Tr", "Tj"),
    ending=".txt",
)
LAYOUTS["dasgip"] = Layout(
    "Fermenter: DASGIP/Eppendorf, timestamps beside durations",
    "Timestamp;Duration;Unit 1.DO1.PV [%DO];Unit 1.T1.PV [°C];Unit 1.pH1.PV\n"
    "2024-03-05 09:00:00;00:00:00;98,2;37,0;7,01\n2024-03-05 10:00:00;01:00:00;91,5;37,1;6,98\n"
    "2024-03-05 11:00:00;02:00:00;80,7;37,0;6,95\n2024-03-05 12:00:00;03:00:00;61,0;36,9;6,90\n",
    runs={
        "": "min Unit_1_DO1_PV Unit_1_pH1_PV / 0 98.2 7.01 / 60 91.5 6.98 / 120 80.7 6.95 / "
        "180 61 6.9"
    },
    inputs=("T",),
)
LAYOUTS["sartorius mfcs"] = Layout(
    "Fermenter: Sartorius BioPAT MFCS",
    "Batch time [h]\tTEMP_1 [°C]\tSTIRR_1 [rpm]\tpO2_1 [%]\tBASET_1 [mL]\n"
    "0.0\t30.0\t300\t99.1\t0.0\n2.0\t30.0\t300\t85.4\t1.2\n4.0\t30.0\t450\t60.3\t3.9\n"
    "6.0\t30.0\t600\t41.2\t8.8\n",
    runs={"": "h pO2_1 BASET_1 / 0 99.1 0 / 2 85.4 1.2 / 4 60.3 3.9 / 6 41.2 8.8"},
    given={"": {"T": 303.15}},
    inputs=("STIRR_1",),
    ending=".txt",
)
LAYOUTS["biolector"] = Layout(
    "BioLector: m2p-labs, one row per well and channel, times across",
    "WELL No.;CONTENT;CHANNEL;[0.0] h;[0.5] h;[1.0] h\n"
    "A01;X1;Biomass;1.2;1.5;2.1\nA01;X1;pH;7.0;6.9;6.8\nA02;X2;Biomass;1.1;1.3;1.9\n",
    refused="times",
)
LAYOUTS["plate reader"] = Layout(
    "Plate reader: BioTek Gen5, kinetic read of wells",
    {
        "Plate 1": "Software Version|3.11.19\nPlate Number|Plate 1\nRead|Absorbance 600\n\n600\n\n"
        "Time|T° 600|A1|A2|A3|B1|B2|B3\n@00:00:00|37.0|0.10|0.11|0.10|0.05|0.05|0.05\n"
        "@00:15:00|37.0|0.14|0.15|0.14|0.06|0.07|0.06\n@00:30:00|37.1|0.20|0.21|0.19|0.08|0.09|0.09"
    },
    runs={
        "A1": "min signal / 0 .1 / 15 .14 / 30 .2",
        "A2": "min signal / 0 .11 / 15 .15 / 30 .21",
        "A3": "min signal / 0 .1 / 15 .14 / 30 .19",
        "B1": "min signal / 0 .05 / 15 .06 / 30 .08",
        "B2": "min signal / 0 .05 / 15 .07 / 30 .09",
        "B3": "min signal / 0 .05 / 15 .06 / 30 .09",
    },
    inputs=("T",),
)
LAYOUTS["plate reader, times across"] = Layout(
    "Plate reader: a kinetic read with one row of times and one row per series",
    {"Result": "Time [s]|0|30|60|90\nS1|0.051|0.112|0.169|0.221\nS2|0.050|0.081|0.108|0.139\n"},
    runs={"": "s S1 S2 / 0 .051 .05 / 30 .112 .081 / 60 .169 .108 / 90 .221 .139"},
)
LAYOUTS["ph logger"] = Layout(
    "pH meter: logger with date and time in two columns",
    "Device,SevenExcellence\nSerial No.,B123456\n\nDate,Time,pH,Temperature (°C)\n"
    "2024-05-14,09:15:00,6.95,25.0\n2024-05-14,09:20:00,6.71,25.0\n2024-05-14,09:30:00,6.32,25.0\n",
    runs={"": "min pH / 0 6.95 / 5 6.71 / 15 6.32"},
    given={"": {"T": 298.15}},
)
LAYOUTS["uv-vis kinetics"] = Layout(
    "UV-Vis: Agilent Cary WinUV Kinetics, samples side by side and a log below",
    "Sample 1,,Sample 2,\nTime (min),Abs,Time (min),Abs\n0.0,0.901,0.0,0.905\n"
    "1.0,0.812,1.0,0.733\n2.0,0.731,2.0,0.598\n3.0,0.660,3.0,0.487\n\n"
    "Collection Time: 5/14/2024 9:31:02 AM\nInstrument Cary 60\nWavelength (nm): 400.0\n",
    runs={
        "Sample 1": "min Abs / 0 .901 / 1 .812 / 2 .731 / 3 .66",
        "Sample 2": "min Abs / 0 .905 / 1 .733 / 2 .598 / 3 .487",
    },
)
LAYOUTS["nmr integrals"] = Layout(
    "NMR: Mnova, integrals of a reaction monitored",
    "Spectrum\tTime (s)\tI(5.42, 5.30)\tI(3.71, 3.60)\n1\t0\t1.000\t0.002\n2\t120\t0.812\t0.190\n"
    "3\t240\t0.661\t0.341\n4\t360\t0.536\t0.465\n",
    runs={
        "": "s I_5_42_5_30 I_3_71_3_60 / 0 1 .002 / 120 .812 .19 / 240 .661 .341 / 360 .536 .465"
    },
    ending=".txt",
)
LAYOUTS["tga"] = Layout(
    "TGA: Netzsch Proteus, exported ASCII",
    "#EXPORTTYPE:;DATA ALL\n#SAMPLE MASS /mg:;9,87\n#RANGE:;25°C/10,0(K/min)/800°C\n\n"
    "##Temp./°C;Time/min;Mass/%\n25,0;0,0;100,00\n35,0;1,0;99,98\n45,0;2,0;99,71\n55,0;3,0;98,90\n",
    runs={"": "min Mass[%] / 0 100 / 1 99.98 / 2 99.71 / 3 98.9"},
    inputs=("T",),
)
LAYOUTS["lims"] = Layout(
    "LIMS: one row per result, with limits of quantification",
    "Sample ID;Sampling date;Parameter;Result;Unit\n"
    "24-001;2024-02-01 08:00;Nitrate;12,5;mg/L\n24-001;2024-02-01 08:00;Nitrite;< 0,05;mg/L\n"
    "24-002;2024-02-01 14:00;Nitrate;9,8;mg/L\n24-002;2024-02-01 14:00;Nitrite;0,31;mg/L\n"
    "24-003;2024-02-01 20:00;Nitrate;7,1;mg/L\n24-003;2024-02-01 20:00;Nitrite;0,52;mg/L\n",
    runs={"": "h Nitrate[mg/L] Nitrite / 0 12.5 - / 6 9.8 .31 / 12 7.1 .52"},
    marks=("D3",),
)
LAYOUTS["mass spectrometer"] = Layout(
    "Mass spectrometer: ion currents",
    "Start Time: 10:15:00\nTime [s],m/z 28 [A],m/z 44 [A]\n0,1.2e-9,3.0e-11\n10,1.1e-9,5.2e-11\n"
    "20,9.8e-10,8.1e-11\n30,9.1e-10,1.05e-10\n",
    runs={
        "": "s m_z_28 m_z_44[A] / 0 1.2e-9 3e-11 / 10 1.1e-9 5.2e-11 / 20 9.8e-10 8.1e-11 / "
        "30 9.1e-10 1.05e-10"
    },
)
LAYOUTS["calorimeter"] = Layout(
    "Isothermal calorimeter: power over time",
    "Time/min;Power/mW\n0;0,0\n5;12,1\n10;9,4\n20;5,7\n",
    runs={"": "min Power[mW] / 0 0 / 5 12.1 / 10 9.4 / 20 5.7"},
)
LAYOUTS["online gc"] = Layout(
    "Fixed bed: online GC with timestamps, mole fractions and set points",
    "Timestamp,x_CO2 [-],x_CH4 [-],Flow [mL/min],p [bar],T_reactor [°C]\n"
    "2024-07-01T10:00:00,0.200,0.000,100,5,250\n2024-07-01T10:20:00,0.151,0.047,100,5,250\n"
    "2024-07-01T10:40:00,0.142,0.055,100,5,250\n2024-07-01T11:00:00,0.139,0.058,100,5,250\n",
    runs={"": "min x_CO2 x_CH4 / 0 .2 0 / 20 .151 .047 / 40 .142 .055 / 60 .139 .058"},
    given={"": {"Flow": 100.0, "p": 5.0, "T": 523.15}},
)
LAYOUTS["conductivity"] = Layout(
    "Conductivity meter: Latin-1, micro sign, decimal commas",
    "Messgerät;SevenCompact\nMesszeit [min];Leitfähigkeit [µS/cm]\n0;12,5\n2;48,1\n4;79,3\n6;105,2\n",
    runs={"": "min Leitfähigkeit[uS/cm] / 0 12.5 / 2 48.1 / 4 79.3 / 6 105.2"},
    encoding="cp1252",
)
LAYOUTS["respirometer"] = Layout(
    "OxiTop: pressure is all that is measured",
    "Zeit [d];p [hPa]\n0;0\n1;-21\n2;-38\n4;-61\n",
    runs={"": "d p[hPa] / 0 0 / 1 -21 / 2 -38 / 4 -61"},
)
LAYOUTS["lab notebook export"] = Layout(
    "Electronic notebook: comments marked by #, one on the header",
    "# exported 2024-01-15\n# operator: MK\n# T = 40 °C\n# time_min\tA_mM\tB_mM\n0\t10\t0\n5\t8\t2\n"
    "10\t6.4\t3.6\n20\t4.1\t5.9\n",
    runs={"": "min A[mM] B / 0 10 0 / 5 8 2 / 10 6.4 3.6 / 20 4.1 5.9"},
    given={"": {"T": 313.15}},
    ending=".txt",
)

# Excel users -------------------------------------------------------------------------------------

ROWS = "0|1|0\n10|0.8|0.2\n20|0.64|0.36\n40|0.41|0.59\n"
RUN = "min A[mol/L] B[mol/L] / 0 1 0 / 10 .8 .2 / 20 .64 .36 / 40 .41 .59"

LAYOUTS["title line"] = Layout(
    "Excel: a title, an empty row, the table",
    {"Sheet1": "Hydrolysis of the ester, run 3 (MK)\n\ntime [min]|A [mol/L]|B [mol/L]\n" + ROWS},
    runs={"": RUN},
)
LAYOUTS["metadata block"] = Layout(
    "Excel: conditions above the table, in two and three cells, or in one",
    {
        "Run": "Date|@2024-03-01\nTemperature:|60 °C\nCatalyst mass|0.5|g\nPressure: 3.5 bar\n"
        "Stirrer|600 rpm\nOperator|MK\n\nt / min|A / mol L-1|B / mol L-1\n" + ROWS
    },
    runs={"": RUN},
    given={"": {"T": 333.15, "Catalyst_mass": 0.5, "Pressure": 3.5, "Stirrer": 600.0}},
)
LAYOUTS["unit row"] = Layout(
    "Excel: a row of units below the names",
    {"Data": "time|A|B|X\nmin|mmol/L|mmol/L|-\n0|1|0|0\n10|0.8|0.2|0.2\n20|0.64|0.36|0.36\n"},
    runs={"": "min A[mmol/L] B[mmol/L] X / 0 1 0 0 / 10 .8 .2 .2 / 20 .64 .36 .36"},
)
LAYOUTS["units in brackets below"] = Layout(
    "Excel: a row of units in brackets, German names",
    {"Tabelle1": "Zeit|Konzentration A|Druck\n[h]|[g/L]|[bar]\n0|5|2\n1|3.9|2\n2|3.1|2\n4|2|2\n"},
    runs={"": "h Konzentration_A[g/L] / 0 5 / 1 3.9 / 2 3.1 / 4 2"},
    given={"": {"Druck": 2.0}},
)
LAYOUTS["units in headers"] = Layout(
    "Excel: units in several forms",
    {
        "Data": "t (h)|glucose / g L-1|ethanol, g/L|biomass (g·L⁻¹)\n0|20|0|0.1\n2|18|0.9|0.3\n4|13|3|1"
    },
    runs={"": "h glucose[g/L] ethanol[g/L] biomass[g/L] / 0 20 0 .1 / 2 18 .9 .3 / 4 13 3 1"},
)
LAYOUTS["clock times"] = Layout(
    "Excel: the time of day of each sample",
    {"Data": "Time|A [mM]\n@08:15|10\n@08:45|7.4\n@09:15|5.5\n@10:15|3\n"},
    runs={"": "min A / 0 10 / 30 7.4 / 60 5.5 / 120 3"},
)
LAYOUTS["clock times past midnight"] = Layout(
    "Excel: the time of day, over midnight",
    {"Data": "Clock time|A [mM]\n@23:00|10\n@23:30|7.4\n@00:30|4.1\n@01:00|3\n"},
    runs={"": "min A / 0 10 / 30 7.4 / 90 4.1 / 120 3"},
)
LAYOUTS["durations"] = Layout(
    "Excel: durations of more than a day",
    {"Data": "Elapsed [hh:mm]|OD600\n@+0:00|0.1\n@+12:30|1.9\n@+26:15|3.2\n@+48:00|3.3\n"},
    runs={"": "h OD600 / 0 .1 / 12.5 1.9 / 26.25 3.2 / 48 3.3"},
)
LAYOUTS["dates"] = Layout(
    "Storage test: days of sampling, German dates",
    "Datum;Gehalt [%]\n01.02.2024;99,8\n01.03.2024;98,1\n01.05.2024;95,0\n",
    runs={"": "h Gehalt / 0 99.8 / 696 98.1 / 2160 95"},
)
LAYOUTS["dates that are ambiguous"] = Layout(
    "Storage test: days or months first",
    "Date,Assay [%]\n01/02/2024,99.8\n01/03/2024,98.1\n01/05/2024,95.0\n",
    choices=("day", "month"),
)
LAYOUTS["american dates"] = Layout(
    "Storage test: months first, as a 15th shows",
    "Date,Assay [%]\n02/01/2024,99.8\n02/15/2024,98.9\n03/01/2024,98.1\n",
    runs={"": "h Assay / 0 99.8 / 336 98.9 / 696 98.1"},
)
LAYOUTS["german csv"] = Layout(
    "German Excel: semicolons, decimal commas, Latin-1, conditions above",
    "Versuch 12;;\nTemperatur: 60 °C;;\n;;\nZeit [min];c(A) [mol/l];c(B) [mol/l]\n"
    "0;1,00;0,00\n10;0,80;0,20\n20;0,64;0,36\n",
    runs={"": "min c_A[mol/L] c_B / 0 1 0 / 10 .8 .2 / 20 .64 .36"},
    given={"": {"T": 333.15}},
    encoding="cp1252",
)
LAYOUTS["empty cells"] = Layout(
    "Excel: not everything measured at all times",
    {"Data": "t [min]|A [mM]|B [mM]|\n0|1|0|\n10||0.2|\n20|0.64||\n|||\n40|0.41|0.59|\n"},
    runs={"": "min A B / 0 1 0 / 10 - .2 / 20 .64 - / 40 .41 .59"},
)
LAYOUTS["limits of detection"] = Layout(
    "Excel: below the limit, not detected, not available",
    {"Data": "t [h]|A [mg/L]|B [mg/L]\n0|8.1|n.d.\n1|3.0|< 0.01\n2|NA|0.52\n4|<LOD|0.9\n"},
    runs={"": "h A B / 0 8.1 - / 1 3 - / 2 - .52 / 4 - .9"},
    marks=("C2", "C3", "B5"),
)
LAYOUTS["replicates, numbered"] = Layout(
    "Excel: two samples at each time",
    {"Data": "t [min]|A_1 [mM]|A_2 [mM]|B\n0|10|10.2|0\n5|8.1|7.9|2\n10|6.6|6.5|3.4\n"},
    runs={"": "min A[mM] B / 0 10 0 / 0 10.2 - / 5 8.1 2 / 5 7.9 - / 10 6.6 3.4 / 10 6.5 -"},
)
LAYOUTS["replicates in brackets"] = Layout(
    "Excel: replicates (1), (2), (3)",
    {"Data": "t [min]|A (1)|A (2)|A (3)\n0|10|10.2|9.9\n5|8.1|7.9|8\n10|6.6|6.5|6.7\n"},
    runs={"": "min A / 0 10 / 0 10.2 / 0 9.9 / 5 8.1 / 5 7.9 / 5 8 / 10 6.6 / 10 6.5 / 10 6.7"},
)
LAYOUTS["states, numbered"] = Layout(
    "Excel: x_1 and x_2 that are not alike",
    {"Data": "t [min]|x_1|x_2\n0|10|0.2\n5|8.1|1.9\n10|6.6|3.5\n"},
    choices=("replicates", "quantities"),
)
LAYOUTS["replicates of one name"] = Layout(
    "Excel: the same header twice",
    {"Data": "t [min]|A [mM]|A [mM]\n0|10|10.2\n5|8.1|7.9\n10|6.6|6.5\n"},
    runs={"": "min A / 0 10 / 0 10.2 / 5 8.1 / 5 7.9 / 10 6.6 / 10 6.5"},
)
LAYOUTS["one sheet per temperature"] = Layout(
    "Excel: sheets with a temperature each",
    {
        "Run A": "Temperature|40|°C\n\nt [min]|A [mM]\n0|10\n10|8.2\n20|6.7\n",
        "Run B": "Temperature|60|°C\n\nt [min]|A [mM]\n0|10\n10|4.5\n20|2.0\n",
        "Sheet3": "",
    },
    runs={"Run A": "min A / 0 10 / 10 8.2 / 20 6.7", "Run B": "min A / 0 10 / 10 4.5 / 20 2"},
    given={"Run A": {"T": 313.15}, "Run B": {"T": 333.15}},
)
LAYOUTS["sheets named by temperature"] = Layout(
    "Excel: the temperature is the name of the sheet",
    {
        "40 °C": "t [min]|A [mM]\n0|10\n10|8.2\n20|6.7\n",
        "60 °C": "t [min]|A [mM]\n0|10\n10|4.5\n20|2.0\n",
    },
    runs={"40 °C": "min A / 0 10 / 10 8.2 / 20 6.7", "60 °C": "min A / 0 10 / 10 4.5 / 20 2"},
    given={"40 °C": {"T": 313.15}, "60 °C": {"T": 333.15}},
)
LAYOUTS["side by side"] = Layout(
    "Excel: two tables beside each other, with titles and conditions of their own",
    {
        "Data": "Run 1||||Run 2||\nT = 50 °C||||T = 70 °C||\nt [min]|A|B||t [min]|A|B\n"
        "0|1|0||0|1|0\n10|0.8|0.2||5|0.7|0.3\n20|0.64|0.36||10|0.5|0.5\n30|0.5|0.5|||"
    },
    runs={
        "Run 1": "min A B / 0 1 0 / 10 .8 .2 / 20 .64 .36 / 30 .5 .5",
        "Run 2": "min A B / 0 1 0 / 5 .7 .3 / 10 .5 .5",
    },
    given={"Run 1": {"T": 323.15}, "Run 2": {"T": 343.15}},
)
LAYOUTS["stacked"] = Layout(
    "Excel: two tables below each other, with a title each",
    {
        "Data": "Experiment 1 at 50 °C\nt [min]|A\n0|1\n10|0.8\n20|0.64\n\nExperiment 2 at 70 °C\n"
        "t [min]|A\n0|1\n5|0.7\n10|0.5\n"
    },
    runs={
        "Experiment 1 at 50 °C": "min A / 0 1 / 10 .8 / 20 .64",
        "Experiment 2 at 70 °C": "min A / 0 1 / 5 .7 / 10 .5",
    },
    given={"Experiment 1 at 50 °C": {"T": 323.15}, "Experiment 2 at 70 °C": {"T": 343.15}},
)
LAYOUTS["long with conditions"] = Layout(
    "Excel: all runs in one table, conditions in columns",
    {
        "All": "Run|T [°C]|m_cat [g]|t [min]|A [mM]\nE1|50|0.5|0|10\nE1|50|0.5|10|8\nE1|50|0.5|20|6.4\n"
        "E2|70|1.0|0|10\nE2|70|1.0|10|5\nE2|70|1.0|20|2.5\n"
    },
    runs={"E1": "min A / 0 10 / 10 8 / 20 6.4", "E2": "min A / 0 10 / 10 5 / 20 2.5"},
    given={"E1": {"T": 323.15, "m_cat": 0.5}, "E2": {"T": 343.15, "m_cat": 1.0}},
)
LAYOUTS["name of the run once"] = Layout(
    "Excel: merged cells, the run named in its first row alone",
    {"All": "Exp.|t [min]|A [mM]\nE1|0|10\n|10|8\n|20|6.4\nE2|0|10\n|10|5\n|20|2.5\n"},
    runs={"E1": "min A / 0 10 / 10 8 / 20 6.4", "E2": "min A / 0 10 / 10 5 / 20 2.5"},
)
LAYOUTS["temperature over time"] = Layout(
    "Excel: a heating ramp",
    {"Data": "t [min]|T [°C]|A [mM]\n0|25|10\n10|35|9.5\n20|45|8\n30|55|5.2\n"},
    runs={"": "min A / 0 10 / 10 9.5 / 20 8 / 30 5.2"},
    inputs=("T",),
)
LAYOUTS["conversion of a species"] = Layout(
    "Excel: conversion of A in per cent",
    {"Data": "t [min]|Conversion of A [%]\n0|0\n10|20\n20|36\n40|59\n"},
    runs={"": "min Conversion_of_A[%] / 0 0 / 10 20 / 20 36 / 40 59"},
    kinds={"Conversion_of_A": "conversion of A"},
)
LAYOUTS["conversion and yield"] = Layout(
    "Excel: conversion, yield and selectivity, of what is not said",
    {
        "Data": "t [h]|conversion [%]|yield of B [%]|selectivity [%]\n0|0|0|\n1|20|18|90\n2|36|31|86\n"
    },
    runs={"": "h conversion yield_of_B selectivity / 0 0 0 - / 1 20 18 90 / 2 36 31 86"},
    kinds={"conversion": "conversion", "yield_of_B": "yield of B", "selectivity": "selectivity"},
)
LAYOUTS["cells in per cent"] = Layout(
    "Excel: numbers shown as per cent, which are stored as fractions",
    {"Data": "t [h]|Conversion of A [%]\n0|%0\n1|%20\n2|%36\n"},
    runs={"": "h Conversion_of_A / 0 0 / 1 20 / 2 36"},
    kinds={"Conversion_of_A": "conversion of A"},
)
LAYOUTS["unit above the names"] = Layout(
    "Excel: merged cells above the columns give quantity and unit",
    {
        "Data": "|Concentration [mol/L]||\nt [min]|A|B|C\n0|1|0|0\n10|0.8|0.15|0.05\n20|0.64|0.25|0.11"
    },
    runs={"": "min A[mol/L] B[mol/L] C[mol/L] / 0 1 0 0 / 10 .8 .15 .05 / 20 .64 .25 .11"},
)
LAYOUTS["statistics below"] = Layout(
    "Excel: mean and standard deviation below the table, a note further down",
    {
        "Data": "t [min]|A [mM]\n0|10\n10|8\n20|6.4\nMean|8.13\nSD|1.8\n\nNote: sample 2 was diluted\n"
    },
    runs={"": "min A / 0 10 / 10 8 / 20 6.4"},
)
LAYOUTS["columns of deviations"] = Layout(
    "Excel: a column ± behind each quantity",
    {"Data": "t [min]|A [mM]|±|B [mM]|±\n0|10|0.1|0|0.1\n10|8|0.2|2|0.1\n20|6.4|0.1|3.5|0.2\n"},
    runs={"": "min A B / 0 10 0 / 10 8 2 / 20 6.4 3.5"},
    sigma=("A", "B"),
)
LAYOUTS["deviations by name"] = Layout(
    "Excel: columns A sd and B sd",
    {"Data": "t [min]|A|A sd|B|B sd\n0|10|0.1|0|0.1\n10|8|0.2|2|0.1\n20|6.4|0.1|3.5|0.2\n"},
    runs={"": "min A B / 0 10 0 / 10 8 2 / 20 6.4 3.5"},
    sigma=("A", "B"),
)
LAYOUTS["deviations in the cells"] = Layout(
    "Word table in Excel: 0.95 ± 0.02 in each cell",
    {"Data": "t [min]|A [mM]\n0|10.0 ± 0.1\n10|8.0 ± 0.2\n20|6.4 ± 0.1\n"},
    runs={"": "min A / 0 10 / 10 8 / 20 6.4"},
    sigma=("A",),
)
LAYOUTS["unicode text of excel"] = Layout(
    "Excel: saved as Unicode text (UTF-16, tabs)",
    "Zeit [min]\tA [mol/L]\n0\t1,0\n10\t0,8\n20\t0,64\n",
    runs={"": "min A / 0 1 / 10 .8 / 20 .64"},
    encoding="utf-16",
    ending=".txt",
)
LAYOUTS["thousands"] = Layout(
    "CSV: commas between thousands",
    'Time [s],Area A,Area B\n0,"12,034.5","0.0"\n10,"9,120.1","2,871.9"\n20,"6,950.0","5,018.2"\n',
    runs={"": "s Area_A Area_B / 0 12034.5 0 / 10 9120.1 2871.9 / 20 6950 5018.2"},
    kinds={"Area_A": "area", "Area_B": "area"},
)
LAYOUTS["thousands or decimals"] = Layout(
    "Text: commas that may be either",
    "t [s]\tA\n0\t1,234\n10\t1,187\n20\t1,052\n",
    choices=("decimal=','", "decimal='.'"),
    ending=".txt",
)
LAYOUTS["comments"] = Layout(
    "Excel: remarks beside the numbers, a running number",
    {"Data": "No.|t [min]|A [mM]|Comment\n1|0|10|start\n2|10|8|\n3|20|6.4|sample cloudy\n"},
    runs={"": "min A / 0 10 / 10 8 / 20 6.4"},
)
LAYOUTS["two times"] = Layout(
    "Excel: planned and true sampling times that differ",
    {"Data": "planned time [min]|true time [min]|A\n0|0|10\n10|11|8\n20|24|6.4\n"},
    choices=("planned time [min]", "true time [min]"),
)
LAYOUTS["minutes or hours"] = Layout(
    "CSV: 00:30 without a word of what it is",
    "time,A\n00:00,10\n00:30,8\n01:00,6.4\n",
    choices=("hh:mm", "mm:ss"),
)
LAYOUTS["table of conditions"] = Layout(
    "Excel: a sheet that lists the runs, a sheet for each",
    {
        "Overview": "Run|T [°C]|Catalyst [g]\nK1|50|0.5\nK2|70|0.25\n",
        "K1": "t [min]|A [mM]\n0|10\n10|8\n20|6.4\n",
        "K2": "t [min]|A [mM]\n0|10\n10|6\n20|3.7\n",
    },
    runs={"K1": "min A / 0 10 / 10 8 / 20 6.4", "K2": "min A / 0 10 / 10 6 / 20 3.7"},
    given={"K1": {"T": 323.15, "Catalyst": 0.5}, "K2": {"T": 343.15, "Catalyst": 0.25}},
)
LAYOUTS["time starts again"] = Layout(
    "Excel: runs below each other with nothing between them",
    {"Data": "t [min]|A\n0|1\n10|0.8\n20|0.64\n0|1\n5|0.7\n10|0.5\n"},
    refused="goes back from 20 to 0",
)
LAYOUTS["long, quantities below each other"] = Layout(
    "CSV: one row for each quantity, sorted by subject, quantity and time",
    "subject,time,quantity,value\na,0,C,3\na,1,C,2\na,0,E,20\na,1,E,30\nb,0,C,6\nb,1,C,5\nb,0,E,10\nb,1,E,40\n",
    runs={"a": "t C E / 0 3 20 / 1 2 30", "b": "t C E / 0 6 10 / 1 5 40"},
)
LAYOUTS["German batches"] = Layout(
    "CSV: a column Charge with texts",
    "Charge;Zeit / h;A\nB1;0;1\nB1;1;0,5\nB2;0;2\nB2;1;1,1\n",
    runs={"B1": "h A / 0 1 / 1 0.5", "B2": "h A / 0 2 / 1 1.1"},
)
LAYOUTS["electric charge"] = Layout(
    "CSV: a column Charge with numbers",
    "t,Charge\n0,1\n1,0.5\n",
    runs={"": "t Charge / 0 1 / 1 0.5"},
)
LAYOUTS["long, by a column of unknown meaning"] = Layout(
    "CSV: different values at one time, told apart by a text",
    "time,Kanal,value\n0,C,3\n0,E,20\n1,C,2\n1,E,30\n",
    choices=(
        "its entries name the experiments",
        "its entries are quantities",
        "the rows are replicates",
    ),
)
LAYOUTS["long, replicates by name"] = Layout(
    "CSV: replicates of two people",
    "time,by,A\n0,Ann,10\n0,Ben,10.1\n10,Ann,8\n10,Ben,8.1\n",
    runs={"": "t A / 0 10 / 0 10.1 / 10 8 / 10 8.1"},
)
LAYOUTS["no table"] = Layout("Excel: notes", {"Notes": "made on Monday\n"}, refused="no table")
LAYOUTS["text among numbers"] = Layout(
    "Excel: a word where a number is needed",
    {"Data": "t [min]|A\n0|1\n10|spilled\n20|0.64\n"},
    refused="B3",
)
LAYOUTS["formulas without values"] = Layout(
    "Excel: formulas that were never calculated",
    {"Data": "t [min]|A\n0|1\n10|=B2*0.8\n20|=B3*0.8\n"},
    refused="formulas",
)
LAYOUTS["calibration beside the data"] = Layout(
    "Excel: a calibration sheet that is no experiment",
    {
        "Calibration": "c [mM]|Area\n0|0\n1|1020\n2|2031\n",
        "Kinetics": "t [min]|A [mM]\n0|10\n10|8\n20|6.4\n",
    },
    runs={"": "min A / 0 10 / 10 8 / 20 6.4"},
)
LAYOUTS["residence times"] = Layout(
    "Plug flow: conversion over residence time",
    {"Data": "residence time [s]|A [mM]\n0|10\n30|8\n60|6.4\n"},
    choices=("residence time [s]",),
)
LAYOUTS["a point forgotten"] = Layout(
    "Excel: 812 typed for 8.12",
    {"Data": "t [min]|A [mM]\n0|10\n5|9\n10|812\n15|7.3\n20|6.6\n"},
    runs={"": "min A / 0 10 / 5 9 / 10 812 / 15 7.3 / 20 6.6"},
    warns=("row 4",),
)
LAYOUTS["below zero"] = Layout(
    "Excel: a concentration below zero",
    {"Data": "t [min]|c(A) [mM]\n0|10\n10|8\n20|-0.64\n"},
    runs={"": "min c_A / 0 10 / 10 8 / 20 -.64"},
    warns=("row 4",),
)
LAYOUTS["minutes and hours"] = Layout(
    "Excel: sheets in different units",
    {
        "slow": "t [h]|A [mol/L]\n0|0.010\n1|0.008\n2|0.0064\n",
        "fast": "t [min]|A [mmol/L]\n0|10\n30|6\n60|3.7\n",
    },
    runs={
        "slow": "h A[mol/L] / 0 .01 / 1 .008 / 2 .0064",
        "fast": "h A[mol/L] / 0 .01 / .5 .006 / 1 .0037",
    },
)

# Tried after the reader was written: files that were read wrongly at first.

LAYOUTS["retention times beside areas"] = Layout(
    "GC: a retention time in minutes is no measured quantity",
    "Injection;Reaction time/min;RT A [min];A [mM]\n1;0;4,2;10\n2;5;4,2;8\n3;10;4,21;6,4\n",
    runs={"": "min A / 0 10 / 5 8 / 10 6.4"},
)
LAYOUTS["sheets of one experiment"] = Layout(
    "Excel: a sheet for each instrument",
    {"HPLC": "t [min]|A [mM]\n0|1\n10|0.8\n20|0.6\n", "pH": "t [min]|pH\n0|7\n10|6.8\n20|6.5\n"},
    choices=("together=True", "together=False"),
)
LAYOUTS["runs in headers"] = Layout(
    "Excel: a column for each run",
    "t [min];A Run 1;A Run 2\n0;1;2\n5;0,8;1,7\n10;0,6;1,5\n",
    runs={"Run 1": "min A / 0 1 / 5 .8 / 10 .6", "Run 2": "min A / 0 2 / 5 1.7 / 10 1.5"},
)
LAYOUTS["white space"] = Layout(
    "Text: columns parted by spaces",
    "t A B\n0 1 0\n5 .8 .2\n10 .6 .4\n",
    runs={"": "t A B / 0 1 0 / 5 .8 .2 / 10 .6 .4"},
    ending=".txt",
)
LAYOUTS["unit for a name"] = Layout(
    "CSV: the column of times is called min",
    "min,A,B\n0,1,0\n5,.8,.2\n10,.6,.4\n",
    runs={"": "min A B / 0 1 0 / 5 .8 .2 / 10 .6 .4"},
)

# Written by somebody who had not seen the reader: what it read wrongly or refused without need.

LAYOUTS["tecan"] = Layout(
    "Plate reader: Tecan i-control, times across below a preamble",
    {
        "Sheet2": "Application: Tecan i-control\nDate:|@2024-05-02\n\nMode|Absorbance\n"
        "Measurement Wavelength|405|nm\n\nCycle Nr.|1|2|3\nTime [s]|0|30|60\n"
        "Temp. [°C]|30.1|30.0|30.2\nA1|0.101|0.152|0.201\nB1|0.100|0.110|0.121\n\n"
        "End Time:|@2024-05-02T10:14:00\n"
    },
    runs={"": "s A1 B1 / 0 .101 .1 / 30 .152 .11 / 60 .201 .121"},
    inputs=("T",),
)
LAYOUTS["times in headers"] = Layout(
    "Excel: a row for each compound, a column for each time",
    {"S": "Compound|Unit|0 min|5 min|30 min\nPhenol|mg/L|100|82|31\nCatechol|mg/L|0|11|22\n"},
    runs={"": "min Phenol[mg/L] Catechol / 0 100 0 / 5 82 11 / 30 31 22"},
)
LAYOUTS["times with their units"] = Layout(
    "Excel: times as one says them",
    {"S": "Time|A (mM)\n0|10\n15 min|8\n1 h|4.1\n1 h 30 min|2.6\n"},
    runs={"": "min A / 0 10 / 15 8 / 60 4.1 / 90 2.6"},
)
LAYOUTS["replicates and their mean"] = Layout(
    "Excel: replicates, with mean and deviation computed from them",
    "Time (h);A rep1 (mM);A rep2 (mM);A mean;A SD\n0;5,0;5,2;5,1;0,1\n1;3,9;4,1;4,0;0,1\n",
    runs={"": "h A[mM] / 0 5 / 0 5.2 / 1 3.9 / 1 4.1"},
)
LAYOUTS["mean and deviation"] = Layout(
    "Excel: means with their deviations",
    "Time (h);A mean (mM);A SD\n0;5,1;0,1\n1;4,0;0,1\n",
    runs={"": "h A / 0 5.1 / 1 4"},
    sigma=("A",),
)
LAYOUTS["areas in mAU*min"] = Layout(
    "HPLC: areas whose unit contains a time, beside retention times",
    "Reaction time (min);Ret. Time A (min);Area A (mAU*min)\n0;4,21;125,3\n15;4,20;98,1\n",
    runs={"": "min Area_A / 0 125.3 / 15 98.1"},
    kinds={"Area_A": "area"},
)
LAYOUTS["thousands by spaces"] = Layout(
    "French and Swiss Excel: spaces and apostrophes between thousands",
    "Temps (s);A (ppm);B (ppm)\n0;101\u202f325,0;1'200\n60;99\xa0200,5;2'450\n",
    runs={"": "s A_ppm B_ppm / 0 101325 1200 / 60 99200.5 2450"},
)
LAYOUTS["deviations with decimal commas"] = Layout(
    "CSV: 5,0 ± 0,2 in each cell",
    "t (h);A (mM)\n0;5,0 ± 0,2\n1;3,9 ± 0,2\n",
    runs={"": "h A / 0 5 / 1 3.9"},
    sigma=("A",),
)
LAYOUTS["timestamps of a logger"] = Layout(
    "Data logger: moments with fractions of seconds and a time zone",
    "Timestamp,Pressure (bar),Temp (°C)\n2024-03-01T08:00:00.000Z,1.02,80.0\n"
    "2024-03-01T08:00:30.000Z,1.31,80.1\n2024-03-01T08:01:00.000Z,1.58,80.0\n",
    runs={"": "min Pressure / 0 1.02 / .5 1.31 / 1 1.58"},
    inputs=("T",),
)
LAYOUTS["own times for each quantity"] = Layout(
    "Excel: two instruments side by side, each with its own times",
    "t_A (min),A (mM),t_B (min),B (mM)\n0,10,2,1.1\n5,7.0,6,3.3\n",
    choices=("together=True", "together=False"),
)
LAYOUTS["names of samples"] = Layout(
    "Excel: times in the names of samples alone",
    {"S": "Probe|A [mM]|B [mM]\nt0|10|0\nt10|8|2\nt20|6.4|3.6\n"},
    refused="Which column",
)
LAYOUTS["numpy"] = Layout(
    "Text: numpy.savetxt with a commented header",
    "# made on Monday\n# t[s] A[mM]\n0.000e+00 1.0e+01\n1.000e+00 8.0e+00\n",
    runs={"": "s A / 0 10 / 1 8"},
    ending=".dat",
)
LAYOUTS["conditions at the right"] = Layout(
    "Excel: a list of conditions beside the table",
    {
        "S": "Time (min)|A (mol/L)|||Parameter|Value|Unit\n0|1.0|||Temperature|60|°C\n"
        "5|0.8|||Volume|0.25|L\n10|0.64\n"
    },
    runs={"": "min A / 0 1 / 5 .8 / 10 .64"},
    given={"": {"T": 333.15, "Volume": 0.25}},
)
LAYOUTS["a hidden row"] = Layout(
    "Excel: a filtered row, which was read wrongly if nobody says so",
    {"S": "t [min]|A [mM]\n0|10\n~5|3\n10|5\n"},
    runs={"": "min A / 0 10 / 5 3 / 10 5"},
    warns=("hides row 3",),
)
LAYOUTS["a hidden sheet"] = Layout(
    "Excel: a hidden sheet of calculations",
    {"S": "t [min]|A [mM]\n0|10\n10|5\n", "calc~": "t [min]|A [mM]\n0|1\n10|0.5\n"},
    runs={"": "min A / 0 10 / 10 5"},
)
LAYOUTS["temperatures above columns"] = Layout(
    "Excel: merged cells above the same columns tell runs apart",
    {"S": "|25 °C||40 °C|\nt (min)|A (mM)|B (mM)|A (mM)|B (mM)\n0|10|0|10|0\n10|9|1|7|3\n"},
    runs={"25 °C": "min A B / 0 10 0 / 10 9 1", "40 °C": "min A B / 0 10 0 / 10 7 3"},
    given={"25 °C": {"T": 298.15}, "40 °C": {"T": 313.15}},
)
LAYOUTS["instruments above columns"] = Layout(
    "Excel: names over three rows; one experiment or several",
    {"S": "Time|HPLC||NMR\n|A|B|A\nmin|mM|mM|mM\n0|10|0|9.9\n10|8|2|8.1\n"},
    choices=("together=True", "together=False"),
)
LAYOUTS["headers on the next page"] = Layout(
    "Excel: the names come again at a page break",
    {"S": "t (min)|A (mM)\n0|10\n10|8\nt (min)|A (mM)\n20|6.4\n30|5.1\n"},
    runs={"": "min A / 0 10 / 10 8 / 20 6.4 / 30 5.1"},
)
LAYOUTS["days of excel"] = Layout(
    "CSV: dates saved as numbers of days",
    "Date;A (mM)\n45292,25;10\n45292,5;8\n45293;6,4\n",
    runs={"": "h A / 0 10 / 6 8 / 18 6.4"},
)
LAYOUTS["two temperatures"] = Layout(
    "Excel: the sheet's name and a line above the table contradict each other",
    {"50 °C": "Temperature|60|°C\nt (min)|A (mM)\n0|10\n10|8\n"},
    refused="two temperatures (50 °C and 60 °C)",
)
LAYOUTS["conditions named once"] = Layout(
    "Excel: merged cells down, run and temperature in the first row of each run alone",
    {"S": "Run|T (K)|t (s)|C\n1|300|0|100\n||10|90\n2|320|0|100\n||10|70\n"},
    runs={"1": "s C / 0 100 / 10 90", "2": "s C / 0 100 / 10 70"},
    given={"1": {"T": 300}, "2": {"T": 320}},
)
LAYOUTS["names over two lines"] = Layout(
    "Excel: line breaks within the names",
    '"Time\n(min)";"c(A)\n(mol/L)"\n0;1,0\n10;0,8\n',
    runs={"": "min c_A[mol/L] / 0 1 / 10 .8"},
)

# Supplementary files of papers -------------------------------------------------------------------

LAYOUTS["paper: esterification"] = Layout(
    "Supplementary workbook of a paper on esterification over an ion exchange resin",
    {
        "S1 (333 K)": "Table S1. Mole fractions, Amberlyst 15, T = 333.15 K, m_cat = 2.5 g\n\n"
        "t / min|x(HAc)|x(MeOH)|x(MeAc)|x(H2O)\n0|0.5|0.5|0|0\n10|0.42|0.42|0.08|0.08\n30|0.31|0.31|0.19|0.19",
        "S2 (343 K)": "Table S2. Mole fractions, Amberlyst 15, T = 343.15 K, m_cat = 2.5 g\n\n"
        "t / min|x(HAc)|x(MeOH)|x(MeAc)|x(H2O)\n0|0.5|0.5|0|0\n10|0.38|0.38|0.12|0.12\n30|0.25|0.25|0.25|0.25",
    },
    runs={
        "S1 (333 K)": "min x_HAc x_MeOH x_MeAc x_H2O / 0 .5 .5 0 0 / 10 .42 .42 .08 .08 / "
        "30 .31 .31 .19 .19",
        "S2 (343 K)": "min x_HAc x_MeOH x_MeAc x_H2O / 0 .5 .5 0 0 / 10 .38 .38 .12 .12 / "
        "30 .25 .25 .25 .25",
    },
    given={"S1 (333 K)": {"T": 333.15, "m_cat": 2.5}, "S2 (343 K)": {"T": 343.15, "m_cat": 2.5}},
)
LAYOUTS["paper: photocatalysis"] = Layout(
    "Source data of a figure: dye removal, C/C0 over irradiation time",
    {
        "Fig. 4a": "Irradiation time (min)|C/C0|error\n0|1|0.01\n15|0.72|0.02\n30|0.51|0.02\n60|0.27|0.01"
    },
    runs={"": "min C_C0 / 0 1 / 15 .72 / 30 .51 / 60 .27"},
    sigma=("C_C0",),
)
LAYOUTS["paper: enzyme progress curves"] = Layout(
    "Source data of enzyme progress curves, a column for each substrate concentration",
    {"Fig. 2": "Time (s)|1 mM|5 mM|10 mM\n0|0|0|0\n30|0.21|0.62|0.78\n60|0.39|1.2|1.5\n"},
    refused="1 mM",
)
LAYOUTS["paper: polymerisation"] = Layout(
    "Supplementary table of a controlled polymerisation: conversion, molar mass, dispersity",
    {"Table S3": "t (h)|Conv. (%)|Mn (g/mol)|Đ\n0.5|8|2100|1.21\n1|15|3900|1.18\n2|28|7200|1.15\n"},
    runs={"": "h Conv Mn[g/mol] Đ / .5 8 2100 1.21 / 1 15 3900 1.18 / 2 28 7200 1.15"},
    kinds={"Conv": "conversion"},
)
LAYOUTS["paper: fermentation"] = Layout(
    "Supplementary table of a batch fermentation with standard deviations",
    "Time (h),Biomass (g/L),SD Biomass,Glucose (g/L),SD Glucose,Ethanol (g/L),SD Ethanol\n"
    "0,0.2,0.01,50,0.5,0,0.01\n4,1.1,0.05,44,0.6,2.1,0.1\n8,3.9,0.1,25,0.4,9.8,0.2\n"
    "12,5.0,0.1,3.1,0.2,19.5,0.4\n",
    runs={
        "": "h Biomass[g/L] Glucose Ethanol / 0 .2 50 0 / 4 1.1 44 2.1 / 8 3.9 25 9.8 / 12 5 3.1 19.5"
    },
    sigma=("Biomass", "Glucose", "Ethanol"),
)
LAYOUTS["paper: methanation"] = Layout(
    "Supplementary workbook of CO2 methanation: conversion and selectivity over time on stream",
    {
        "Ni-Al2O3": "Catalyst:|Ni/Al2O3\nGHSV:|12000 mL/g/h\np:|1 bar\n\n"
        "TOS (h)|X_CO2 (%)|S_CH4 (%)\n0.5|78.1|99.2\n1|77.9|99.1\n5|76.2|99.0\n20|71.0|98.7\n"
    },
    runs={"": "h X_CO2 S_CH4 / .5 78.1 99.2 / 1 77.9 99.1 / 5 76.2 99 / 20 71 98.7"},
    given={"": {"GHSV": 12000.0, "p": 1.0}},
    kinds={"X_CO2": "conversion of CO2", "S_CH4": "selectivity of CH4"},
)
LAYOUTS["paper: drug stability"] = Layout(
    "Supplementary table of drug degradation: a column for each temperature",
    {
        "Table S2": "Remaining content / %\nTime (d)|25 °C|40 °C|60 °C\n0|100|100|100\n7|99.5|97.9|90.2\n"
        "14|99.1|95.8|81.1\n28|98.0|91.9|66.0\n"
    },
    runs={
        "25 °C": "d value / 0 100 / 7 99.5 / 14 99.1 / 28 98",
        "40 °C": "d value / 0 100 / 7 97.9 / 14 95.8 / 28 91.9",
        "60 °C": "d value / 0 100 / 7 90.2 / 14 81.1 / 28 66",
    },
    given={"25 °C": {"T": 298.15}, "40 °C": {"T": 313.15}, "60 °C": {"T": 333.15}},
)
LAYOUTS["paper: adsorption"] = Layout(
    "Supplementary table of adsorption kinetics",
    "t (min),qt (mg/g)\n0,0\n5,12.1\n15,21.8\n30,27.9\n60,31.0\n",
    runs={"": "min qt[mg/g] / 0 0 / 5 12.1 / 15 21.8 / 30 27.9 / 60 31"},
)
LAYOUTS["paper: cycloaddition by nmr"] = Layout(
    "Supplementary workbook of NMR kinetics: concentrations in brackets",
    {
        "Kinetics": "Diels-Alder reaction in CDCl3 at 298 K\nt / s|[1a] / M|[2] / M|[3a] / M\n"
        "0|0.1|0.1|0\n600|0.082|0.082|0.018\n1800|0.059|0.06|0.041\n3600|0.041|0.042|0.059"
    },
    runs={
        "": "s x1a[M] x2 x3a / 0 .1 .1 0 / 600 .082 .082 .018 / 1800 .059 .06 .041 / "
        "3600 .041 .042 .059"
    },
    given={"": {"T": 298.0}},
)
LAYOUTS["paper: isomerisation, tidy"] = Layout(
    "Data repository: a tidy table of terpene isomerisation at two temperatures",
    "experiment,temperature_C,time_min,species,value\n"
    "A,189.5,0,pinene,100\nA,189.5,0,dipentene,0\nA,189.5,1230,pinene,88.35\n"
    "A,189.5,1230,dipentene,7.3\nB,204.5,0,pinene,100\nB,204.5,0,dipentene,0\n"
    "B,204.5,440,pinene,85.9\nB,204.5,440,dipentene,9.1\n",
    runs={
        "A": "min pinene dipentene / 0 100 0 / 1230 88.35 7.3",
        "B": "min pinene dipentene / 0 100 0 / 440 85.9 9.1",
    },
    given={"A": {"T": 462.65}, "B": {"T": 477.65}},
)
LAYOUTS["paper: oscillating reaction"] = Layout(
    "Data repository: electrode potentials with a preamble of #",
    "# doi: 10.0000/none\n# columns: time in s, potential in mV\ntime_s,E_mV\n0,1012\n1,1020\n2,870\n"
    "3,865\n",
    runs={"": "s E[mV] / 0 1012 / 1 1020 / 2 870 / 3 865"},
)
LAYOUTS["paper: crystallisation"] = Layout(
    "Supplementary CSV of a cooling crystallisation: units behind a comma, C for degrees",
    '"Time, s","c, g/kg","T, C"\n0,310,40\n300,308,38\n600,290,36\n900,262,34\n',
    runs={"": "s c[g/kg] / 0 310 / 300 308 / 600 290 / 900 262"},
    inputs=("T",),
)
LAYOUTS["paper: pressures of a decomposition"] = Layout(
    "Supplementary workbook: partial pressures, two runs below one merged title each",
    {
        "Fig. S5": "|run 1, 400 °C|||run 2, 420 °C||\nt / s|p(A) / kPa|p(B) / kPa|t / s|p(A) / kPa|p(B) / kPa\n"
        "0|10|0|0|10|0\n20|8|2|10|7.5|2.5\n40|6.4|3.6|20|5.6|4.4"
    },
    runs={
        "run 1, 400 °C": "s p_A[kPa] p_B / 0 10 0 / 20 8 2 / 40 6.4 3.6",
        "run 2, 420 °C": "s p_A[kPa] p_B / 0 10 0 / 10 7.5 2.5 / 20 5.6 4.4",
    },
    given={"run 1, 400 °C": {"T": 673.15}, "run 2, 420 °C": {"T": 693.15}},
)


def mistakes(layout: Layout, folder: Path, name: str) -> list[str]:
    """Where the reader's understanding of a layout differs from what it says; empty if nowhere."""
    path = layout.write(folder, "".join(c if c.isalnum() else "_" for c in name))
    try:
        book = read_workbook(path)
    except Question as question:
        offered = str(question)
        return [c for c in layout.choices or ["read"] if c not in offered]
    except DataError as error:
        return [] if layout.refused and layout.refused in str(error) else [f"refused: {error}"]
    if layout.refused or layout.choices:
        return ["was read"]
    wrong = [f"{k}: {a!r}, not {b!r}" for k, a, b in _compared(layout, book) if a != b]
    return wrong + [f"no warning: {w}" for w in layout.warns if w not in " ".join(book.warnings)]


def _compared(layout: Layout, book: Workbook) -> Iterator[tuple[str, Any, Any]]:
    """What is read, and what should be."""
    yield "longest line", max(map(len, repr(book).splitlines())) <= 80, True
    yield "runs", [r.name for r in book.runs], list(layout.runs)
    units = {q.name: q.unit for q in (*book.measured, *book.inputs)}
    yield "kinds", {q.name: q.kind for q in book.measured if q.kind}, dict(layout.kinds)
    yield "inputs", sorted(q.name for q in book.inputs), sorted(layout.inputs)
    yield "deviations", sorted(book.sigma), sorted(layout.sigma)
    yield "marks", sorted(m.place.rpartition("!")[2] for m in book.marks), sorted(layout.marks)
    yield "warnings", bool(book.warnings), bool(layout.warns)
    for run in book.runs:
        header, *rows = layout.runs.get(run.name, "").split(" / ")
        time, *columns = header.split() or [""]
        yield f"time in {run.name}", book.time.unit or "t", time
        named = [column.rstrip("]").partition("[") for column in columns]
        names = [name for name, _, _ in named]
        for name, _, unit in named:
            yield f"unit of {name}", not unit or _same(units.get(name, ""), unit), True
        yield (
            f"measured in {run.name}",
            [q.name for q in book.measured if q.name in run.table],
            names,
        )
        expected = [[math.nan if v == "-" else float(v) for v in row.split()] for row in rows]
        values = run.table.reindex(columns=["time", *names]).to_numpy(dtype=float)
        close = values.shape == (len(expected), len(names) + 1) and np.allclose(
            values, np.array(expected), rtol=1e-9, atol=1e-9, equal_nan=True
        )
        yield f"values of {run.name}", values.tolist() if not close else True, True
        given = {n: round(c.value, 6) for n, c in run.conditions.items()}
        mine = dict(layout.given.get(run.name, {}))
        yield (
            f"conditions of {run.name}",
            {n: given.get(n) for n in {*mine, *given} & {*mine, "T"}},
            mine,
        )


def _same(one: str, other: str) -> bool:
    if "%" in one + other:
        return one == other
    registry = pyomo_units.pint_registry
    try:
        return bool(registry.Quantity(1, one).to(other).magnitude == 1.0)
    except pint.PintError:
        return False


def count() -> dict[str, int]:
    """How many layouts are read right, refused as they should be, and anything else."""
    with tempfile.TemporaryDirectory() as folder:
        wrong = {n for n, layout in LAYOUTS.items() if mistakes(layout, Path(folder), n)}
    refused = {n for n, layout in LAYOUTS.items() if layout.refused or layout.choices}
    right = len(LAYOUTS) - len(refused | wrong)
    return {"right": right, "refused": len(refused - wrong), "wrong": len(wrong)}
